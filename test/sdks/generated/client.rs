// A client by openapi-generator: verifies a key, and reads the error of an unknown id.
use openapi::apis::{configuration::Configuration, keys_api, Error};
use openapi::models::{ApiError, KeysGetKeyRequest, KeysVerifyKeyRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let configuration = Configuration {
        base_path: args[1].clone(),
        bearer_access_token: Some(args[2].clone()),
        ..Configuration::new()
    };
    let verify = KeysVerifyKeyRequest::new(args[3].clone());
    let data = keys_api::keys_verify_key(&configuration, verify).await.unwrap().data;
    let get = KeysGetKeyRequest::new("key_none".to_string());
    let Err(Error::ResponseError(failure)) = keys_api::keys_get_key(&configuration, get).await else {
        panic!("no error")
    };
    let problem: ApiError = serde_json::from_str(&failure.content).unwrap();
    let (reset, error) = (data.ratelimits.unwrap()[0].reset, problem.error);
    let printed = serde_json::json!({
        "code": data.code, "reset": reset, "status": error.status, "title": error.title
    });
    println!("{printed}");
}
