// A client by openapi-generator: verifies a key, and reads the error of an unknown id.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"example.org/clients/openapi"
)

func main() {
	url, rootKey, key := os.Args[1], os.Args[2], os.Args[3]
	configuration := openapi.NewConfiguration()
	configuration.Servers = openapi.ServerConfigurations{{URL: url}}
	keys := openapi.NewAPIClient(configuration).KeysAPI
	ctx := context.WithValue(context.Background(), openapi.ContextAccessToken, rootKey)
	verified, _, err := keys.KeysVerifyKey(ctx).KeysVerifyKeyRequest(*openapi.NewKeysVerifyKeyRequest(key)).Execute()
	check(err)
	_, _, err = keys.KeysGetKey(ctx).KeysGetKeyRequest(*openapi.NewKeysGetKeyRequest("key_none")).Execute()
	var failure *openapi.GenericOpenAPIError
	if !errors.As(err, &failure) {
		panic(err)
	}
	problem := failure.Model().(openapi.ApiError).Error
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"code":   verified.Data.Code,
		"reset":  verified.Data.Ratelimits[0].Reset,
		"status": problem.Status,
		"title":  problem.Title,
	}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
