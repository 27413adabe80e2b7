// 300 callers of keys.verifyKey, each with a pool of net/http of its own and pauses of 7 to 13 seconds between eight
// calls, over a link of 20 ms each way. Twice at the same time: with IdleConnTimeout 7 s, and with Go's 90 s. Prints the calls that
// failed in each way.
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const distance = 20 * time.Millisecond

type packet struct {
	bytes []byte
	due   time.Time
}

// Sends on what one side sends, its end included, after the distance.
func forward(from, to net.Conn) {
	packets := make(chan packet, 100)
	go func() {
		for packet := range packets {
			time.Sleep(time.Until(packet.due))
			to.Write(packet.bytes)
		}
		to.(*net.TCPConn).CloseWrite()
	}()
	for {
		buffer := make([]byte, 16384)
		length, err := from.Read(buffer)
		packets <- packet{buffer[:length], time.Now().Add(distance)}
		if err != nil {
			close(packets)
			return
		}
	}
}

// Returns the address of a link to the target.
func link(target string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				panic(err)
			}
			go forward(near, far)
			go forward(far, near)
		}
	}()
	return listener.Addr().String()
}

func failures(address string, idle time.Duration) int64 {
	body := []byte(fmt.Sprintf(`{"key":%q}`, os.Getenv("KEY")))
	verify := func(client *http.Client) error {
		// As from a plain reader: with a body that it can repeat, net/http retries where it is sure that nothing was read.
		request, _ := http.NewRequest("POST", "http://"+address+"/v2/keys.verifyKey", io.NopCloser(bytes.NewReader(body)))
		request.ContentLength = int64(len(body))
		request.Header.Set("Authorization", "Bearer "+os.Getenv("ROOT_KEY"))
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		io.Copy(io.Discard, response.Body)
		if response.StatusCode != 200 {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	}
	var failed atomic.Int64
	var callers sync.WaitGroup
	for caller := 0; caller < 300; caller++ {
		callers.Add(1)
		go func() {
			defer callers.Done()
			client := &http.Client{Transport: &http.Transport{IdleConnTimeout: idle}}
			for call := 0; call < 8; call++ {
				if err := verify(client); err != nil {
					fmt.Fprintln(os.Stderr, idle, err)
					failed.Add(1)
				}
				time.Sleep(7*time.Second + time.Duration(rand.Int63n(int64(6*time.Second))))
			}
		}()
	}
	callers.Wait()
	return failed.Load()
}

func main() {
	address := link(os.Args[1])
	var short, long int64
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); short = failures(address, 7*time.Second) }()
	go func() { defer both.Done(); long = failures(address, 90*time.Second) }()
	both.Wait()
	fmt.Printf(`{"short": %d, "long": %d}`, short, long)
}
