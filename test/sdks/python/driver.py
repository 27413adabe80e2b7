"""Calls the Python SDK of Unkey: reads a call as a JSON line from standard input, and prints its result as a JSON line."""

import inspect
import json
import re
import sys

from unkey.py import Unkey, errors

server_url = sys.argv[1]


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def camel(name):
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


def method_of(client, method):
    service, procedure = method.split(".")
    return getattr(getattr(client, snake(service)), snake(procedure))


def bodies_of(run, value, read_all):
    """The bodies of all pages of a list, or of the only response."""
    if "request" in inspect.signature(run).parameters:
        response = run(request=value)
    else:
        response = run(**{snake(name): member for name, member in value.items()})
    while response is not None:
        # A page of a list has its body in `result`.
        body = getattr(response, "result", response)
        yield body.model_dump(mode="json", by_alias=True)
        response = response.next() if read_all else None


clients = {}


def client_of(root_key):
    if root_key not in clients:
        clients[root_key] = Unkey(root_key=root_key, server_url=server_url, retry_config=None)
    return clients[root_key]


def call(root_key, method, value, read_all):
    try:
        return {"bodies": list(bodies_of(method_of(client_of(root_key), method), value, read_all))}
    except errors.UnkeyError as error:
        decoded = getattr(error, "data", None)
        body = decoded.model_dump(mode="json", by_alias=True) if decoded else error.body
        return {"error": {"type": type(error).__name__, "body": body, "status": error.status_code}}
    except Exception as error:
        # The SDK does not accept the input, or cannot read the response.
        return {"error": {"type": type(error).__name__, "body": str(error)}}


def methods():
    """All methods of all services, by their names in the table."""
    client = client_of("any")
    for service in type(client).__annotations__:
        for name, _ in inspect.getmembers(getattr(client, service), inspect.ismethod):
            # Inherited members are not methods of the service.
            if name in vars(type(getattr(client, service))) and not name.startswith("_") and not name.endswith("_async"):
                yield f"{camel(service)}.{camel(name)}"


for line in sys.stdin:
    request = json.loads(line)
    if request.get("list"):
        answer = {"methods": list(methods())}
    else:
        answer = call(request["rootKey"], request["method"], request["input"], request["all"])
    print(json.dumps(answer), flush=True)
