// Command shop is one service of the shop in the lab. It waits rather than computes, because all
// boards of a lab share one machine.
//
//	GET /OPERATION   waits, asks other services, and answers with some bytes
//	PUT /peers       {"service": "address"}: where the others are
//	GET /asked       {"service": number}: how often it has asked the others
//
// The environment variable OPERATIONS says what each operation does.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

type call struct {
	Service, Operation string
	Times              int
}

type operation struct {
	WaitMs float64 `json:"wait_ms"`
	KB     int `json:"kb"`
	Calls  []call
}

var (
	operations map[string]operation
	peers      atomic.Value // map[string]string
	served     atomic.Int64
	asked      = map[string]*atomic.Int64{}
	client     = &http.Client{Timeout: 60 * time.Second}
)

func ask(c call) error {
	address, known := peers.Load().(map[string]string)[c.Service]
	if !known {
		return fmt.Errorf("no address of %s", c.Service)
	}
	asked[c.Service].Add(1)
	answer, err := client.Get("http://" + address + ":8080/" + c.Operation)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err = io.Copy(io.Discard, answer.Body); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", c.Service, answer.Status)
	}
	return err
}

func serve(w http.ResponseWriter, r *http.Request) {
	doing, known := operations[r.URL.Path[1:]]
	if !known {
		http.NotFound(w, r)
		return
	}
	served.Add(1)
	time.Sleep(time.Duration(doing.WaitMs * float64(time.Millisecond)))
	for _, each := range doing.Calls {
		for range each.Times {
			if err := ask(each); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
	}
	w.Write(make([]byte, 1000*doing.KB))
}

func main() {
	if err := json.Unmarshal([]byte(os.Getenv("OPERATIONS")), &operations); err != nil {
		log.Fatal("OPERATIONS: ", err)
	}
	for _, each := range operations {
		for _, c := range each.Calls {
			asked[c.Service] = &atomic.Int64{}
		}
	}
	peers.Store(map[string]string{})
	http.HandleFunc("PUT /peers", func(w http.ResponseWriter, r *http.Request) {
		told := map[string]string{}
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		peers.Store(told)
	})
	http.HandleFunc("GET /served", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, served.Load())
	})
	http.HandleFunc("GET /asked", func(w http.ResponseWriter, r *http.Request) {
		counts := map[string]int64{}
		for service, count := range asked {
			counts[service] = count.Load()
		}
		json.NewEncoder(w).Encode(counts)
	})
	http.HandleFunc("GET /", serve)
	log.Fatal(http.ListenAndServe(":8080", nil))
}
