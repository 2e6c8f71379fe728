// A worker in Go 1.22 or newer, standard library only: it greets by name, over the worker bridge.
//
//	SERVICE_URL=http://localhost:8080 SERVICE_BRIDGE_TOKEN=... go run examples/worker.go [TASK_TYPE]
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

var url = cmp.Or(os.Getenv("SERVICE_URL"), "http://localhost:8080")

type object map[string]any
type task struct {
	ID    string          `json:"task_id"`
	Input json.RawMessage `json:"input"`
}

// call sends a request and returns the status and the body of the answer; 503 when there is none.
func call(path string, body object) (int, []byte) {
	sent, _ := json.Marshal(body)
	request, err := http.NewRequest("POST", url+"/v1/"+path, bytes.NewReader(sent))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SERVICE_BRIDGE_TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Printf("%s: %v", path, err)
		return 503, nil
	}
	defer answer.Body.Close()
	found, err := io.ReadAll(answer.Body) // of workers/connect: until the connection is lost
	if err != nil {
		return 503, nil
	}
	if answer.StatusCode >= 400 {
		log.Printf("%s: %d %s", path, answer.StatusCode, bytes.TrimSpace(found))
	}
	return answer.StatusCode, found
}

func greet(input json.RawMessage) (any, error) {
	var name *string
	if json.Unmarshal(input, &name) != nil || name == nil {
		return nil, errors.New("the input is no name")
	}
	return object{"greeting": "Hello, " + *name + "!"}, nil
}

// carryOut sends the answer until the service has it. 404 means that the service has it already, or that another worker
// has the task now.
func carryOut(one task) {
	path, done := "tasks/"+one.ID+"/resolve", make(chan bool)
	go func() {
		for { // more than 30 s apart, a restart may lose the task
			select {
			case <-done:
				return
			case <-time.After(10 * time.Second):
				call(path, object{"action": "heartbeat"})
			}
		}
	}()
	output, err := greet(one.Input)
	close(done)
	answer := object{"action": "complete", "output": output}
	if err != nil {
		answer = object{"action": "fail", "error": err.Error(), "failure_type": "non_retriable"}
	}
	for status, _ := call(path, answer); status >= 500; status, _ = call(path, answer) {
		time.Sleep(time.Second)
	}
}

func main() {
	log.SetFlags(0)
	id, types := fmt.Sprintf("go-%d", os.Getpid()), []string{"hello"}
	if len(os.Args) > 1 {
		types = os.Args[1:]
	}
	go func() { // registered for as long as the stream of heartbeats lives
		for ; ; time.Sleep(time.Second) {
			call("workers/connect", object{"worker_id": id, "task_types": types, "max_tasks": 10, "language": "go"})
		}
	}()
	for {
		status, found := call("tasks/poll", object{"task_types": types, "max_tasks": 10, "timeout_ms": 20000, "worker_id": id})
		var tasks []task
		if status != 200 || json.Unmarshal(found, &tasks) != nil {
			time.Sleep(time.Second)
		}
		for _, one := range tasks {
			go carryOut(one)
		}
	}
}
