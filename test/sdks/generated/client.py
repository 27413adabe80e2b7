"""A client by openapi-python-client: verifies a key, and reads the error of an unknown id."""

import json
import sys

from tollgate_client import AuthenticatedClient
from tollgate_client.api.keys import keys_get_key, keys_verify_key
from tollgate_client.models import ApiError, KeysGetKeyBody, KeysVerifyKeyBody, KeysVerifyKeyResponse200

url, root_key, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=root_key)
verified = keys_verify_key.sync(client=client, body=KeysVerifyKeyBody(key=key))
unknown = keys_get_key.sync(client=client, body=KeysGetKeyBody(key_id="key_none"))
assert isinstance(verified, KeysVerifyKeyResponse200) and isinstance(unknown, ApiError)
print(
    json.dumps(
        {
            "code": verified.data.code,
            "reset": verified.data.ratelimits[0].reset,
            "status": unknown.error.status,
            "title": unknown.error.title,
        }
    )
)
