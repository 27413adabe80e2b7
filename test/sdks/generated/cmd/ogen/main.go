// A client by ogen: verifies a key, and reads the error of an unknown id.
package main

import (
	"context"
	"encoding/json"
	"os"

	"example.org/clients/ogen"
)

type root string

func (r root) RootKey(context.Context, ogen.OperationName) (ogen.RootKey, error) {
	return ogen.RootKey{Token: string(r)}, nil
}

// Of an introspection, which takes the root key above, too.
func (r root) RootKeyBasic(context.Context, ogen.OperationName) (ogen.RootKeyBasic, error) {
	return ogen.RootKeyBasic{Password: string(r)}, nil
}

// Only the gateway check has these.
func (r root) Key(context.Context, ogen.OperationName) (ogen.Key, error) { return ogen.Key{}, nil }
func (r root) GatewayRootKey(context.Context, ogen.OperationName) (ogen.GatewayRootKey, error) {
	return ogen.GatewayRootKey{}, nil
}

func main() {
	url, rootKey, key := os.Args[1], os.Args[2], os.Args[3]
	client, err := ogen.NewClient(url, root(rootKey))
	check(err)
	ctx := context.Background()
	verified, err := client.KeysVerifyKey(ctx, &ogen.KeysVerifyKeyReq{Key: key})
	check(err)
	unknown, err := client.KeysGetKey(ctx, &ogen.KeysGetKeyReq{KeyId: "key_none"})
	check(err)
	data := verified.(*ogen.KeysVerifyKeyOKHeaders).Response.Data
	problem := unknown.(*ogen.KeysGetKeyApplicationJSONNotFound).Response.Error
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"code":   data.Code,
		"reset":  data.Ratelimits[0].Reset,
		"status": problem.Status,
		"title":  problem.Title,
	}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
