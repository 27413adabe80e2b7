// A client by openapi-generator: verifies a key, and reads the error of an unknown id.

import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.JSON;
import org.openapitools.client.api.KeysApi;
import org.openapitools.client.model.*;

public class Client {
    public static void main(String[] args) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(args[0]);
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + args[1]));
        KeysApi keys = new KeysApi(client);
        KeysVerifyKey200ResponseData data = keys.keysVerifyKey(new KeysVerifyKeyRequest().key(args[2])).getData();
        try {
            keys.keysGetKey(new KeysGetKeyRequest().keyId("key_none"));
        } catch (ApiException failure) {
            ErrorBody error = JSON.getDefault().getMapper().readValue(failure.getResponseBody(), ApiError.class).getError();
            System.out.println(JSON.getDefault().getMapper().writeValueAsString(Map.of(
                "code", data.getCode(), "reset", data.getRatelimits().get(0).getReset(),
                "status", error.getStatus(), "title", error.getTitle())));
        }
    }
}
