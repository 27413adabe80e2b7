// Calls the Go SDK of Unkey: reads a call as a JSON line from standard input, and prints its result as a JSON line. Methods
// are found by name, so that the table of the TypeScript SDK can be used for this SDK too.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	unkey "github.com/unkeyed/sdks/api/go/v2"
)

type question struct {
	List    bool            `json:"list"`
	RootKey string          `json:"rootKey"`
	Method  string          `json:"method"`
	Input   json.RawMessage `json:"input"`
	All     bool            `json:"all"`
}

type answer struct {
	Methods []string `json:"methods,omitempty"`
	Bodies  []any    `json:"bodies,omitempty"`
	Error   *failure `json:"error,omitempty"`
}

type failure struct {
	Type   string `json:"type"`
	Body   any    `json:"body"`
	Status int    `json:"status,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		client := unkey.New(unkey.WithServerURL(os.Args[1]), unkey.WithSecurity(asked.RootKey))
		var answered answer
		if asked.List {
			answered.Methods = methods(client)
		} else {
			answered = call(client, asked)
		}
		if err := json.NewEncoder(os.Stdout).Encode(answered); err != nil {
			panic(err)
		}
	}
}

// methods returns every method of every service, in lower case.
func methods(client *unkey.Unkey) []string {
	var names []string
	services := reflect.ValueOf(client).Elem()
	for i := range services.NumField() {
		service := services.Type().Field(i)
		if !service.IsExported() || service.Type.Kind() != reflect.Pointer {
			continue
		}
		for j := range service.Type.NumMethod() {
			names = append(names, strings.ToLower(service.Name+"."+service.Type.Method(j).Name))
		}
	}
	return names
}

// find returns the method with a name such as keys.createKey, in any case.
func find(client *unkey.Unkey, name string) (reflect.Value, bool) {
	serviceName, methodName, _ := strings.Cut(name, ".")
	service := reflect.ValueOf(client).Elem().FieldByNameFunc(func(name string) bool {
		return strings.EqualFold(name, serviceName)
	})
	if !service.IsValid() {
		return reflect.Value{}, false
	}
	for i := range service.NumMethod() {
		if strings.EqualFold(service.Type().Method(i).Name, methodName) {
			return service.Method(i), true
		}
	}
	return reflect.Value{}, false
}

// call runs a method. If all pages are requested, it reads a list to its end.
func call(client *unkey.Unkey, asked question) (answered answer) {
	run, ok := find(client, asked.Method)
	if !ok {
		return answer{Error: &failure{Type: "NoSuchMethod", Body: asked.Method}}
	}
	input := reflect.New(run.Type().In(1))
	if err := json.Unmarshal(asked.Input, input.Interface()); err != nil {
		return answer{Error: failureOf(err)}
	}
	results := run.Call([]reflect.Value{reflect.ValueOf(context.Background()), input.Elem()})
	for {
		if err, failed := results[1].Interface().(error); failed {
			return answer{Error: failureOf(err)}
		}
		if results[0].IsNil() {
			return answered
		}
		response := results[0].Elem()
		answered.Bodies = append(answered.Bodies, bodyOf(response))
		next := response.FieldByName("Next")
		if !asked.All || !next.IsValid() || next.IsNil() {
			return answered
		}
		results = next.Call(nil)
	}
}

// bodyOf returns the decoded body of a response, the one field that is named after it.
func bodyOf(response reflect.Value) any {
	for i := range response.NumField() {
		field := response.Field(i)
		if strings.HasSuffix(response.Type().Field(i).Name, "ResponseBody") && !field.IsNil() {
			return field.Interface()
		}
	}
	return nil
}

func failureOf(err error) *failure {
	value := reflect.Indirect(reflect.ValueOf(err))
	failed := &failure{Type: value.Type().Name(), Body: err.Error()}
	if value.Kind() != reflect.Struct {
		return failed
	}
	// The general error has the body as text; the other errors have the decoded body.
	if status := value.FieldByName("StatusCode"); status.IsValid() {
		failed.Status = int(status.Int())
		failed.Body = fmt.Sprint(value.FieldByName("Body"))
	} else if decoded, failedToEncode := json.Marshal(err); failedToEncode == nil {
		var body struct {
			Error struct {
				Status int `json:"status"`
			} `json:"error"`
		}
		if json.Unmarshal(decoded, &body) == nil && body.Error.Status != 0 {
			failed.Status = body.Error.Status
			failed.Body = json.RawMessage(decoded)
		}
	}
	return failed
}
