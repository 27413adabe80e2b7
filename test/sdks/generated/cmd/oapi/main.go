// A client by oapi-codegen: verifies a key, and reads the error of an unknown id.
package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"example.org/clients/oapi"
)

func main() {
	url, rootKey, key := os.Args[1], os.Args[2], os.Args[3]
	authorize := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+rootKey)
		return nil
	}
	client, err := oapi.NewClientWithResponses(url, oapi.WithRequestEditorFn(authorize))
	check(err)
	ctx := context.Background()
	verified, err := client.KeysVerifyKeyWithResponse(ctx, oapi.KeysVerifyKeyJSONRequestBody{Key: key})
	check(err)
	unknown, err := client.KeysGetKeyWithResponse(ctx, oapi.KeysGetKeyJSONRequestBody{KeyId: "key_none"})
	check(err)
	data, problem := verified.JSON200.Data, unknown.JSON404.Error
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"code":   data.Code,
		"reset":  (*data.Ratelimits)[0].Reset,
		"status": problem.Status,
		"title":  problem.Title,
	}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
