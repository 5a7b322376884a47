package main

import (
	"encoding/json"
	"syscall/js"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/playground"
)

// worker is what worker.js has ready: the program's role, and its ways out.
var worker = js.Global().Get("worker")

func main() {
	if worker.Get("role").String() == "store" {
		runStore()
	} else {
		runService()
	}
	select {}
}

// tell sends the page a message.
func tell(what string, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	worker.Call("tell", what, string(text))
}

// receiver is a JavaScript function that takes a message.
func receiver(take func([]byte)) js.Func {
	return js.FuncOf(func(_ js.Value, args []js.Value) any {
		take([]byte(args[0].String()))
		return nil
	})
}

func runService() {
	link := func(port string) *playground.Link {
		p := worker.Get(port)
		l := playground.NewLink(func(m []byte) { p.Call("send", string(m)) })
		p.Call("listen", receiver(l.Receive))
		return l
	}
	store := link("store")
	s, err := playground.Start(playground.Config{
		Name:     worker.Get("name").String(),
		Store:    playground.Remote{Dial: func() (*playground.Link, error) { return store, nil }},
		Ledger:   link("ledger"),
		Watchdog: time.Duration(worker.Get("watchdog").Int()) * time.Millisecond,
		Amount:   worker.Get("amount").Int(),
		Tell:     func(e playground.Event) { tell("event", e) },
		Stop:     func() { worker.Call("stop") },
	})
	if err != nil {
		panic(err)
	}
	worker.Set("press", receiver(func(button []byte) { go s.Do(string(button)) }))
	tell("event", playground.Event{What: "started"})
}

// refresh is how often the page is told what the store has.
const refresh = 100 * time.Millisecond

func runStore() {
	ledger := playground.NewLedger(worker.Get("balance").Int(), func(w playground.Written) { tell("written", w) })
	host := playground.NewHost(memory.New(), ledger)
	observer, err := host.Observe()
	if err != nil {
		panic(err)
	}
	worker.Set("accept", js.FuncOf(func(_ js.Value, args []js.Value) any {
		port := args[1]
		g := host.Accept(args[0].String(), func(m []byte) { port.Call("send", string(m)) })
		port.Call("listen", receiver(g.Receive))
		return js.FuncOf(func(js.Value, []js.Value) any { go g.Close(); return nil })
	}))
	worker.Set("fence", js.FuncOf(func(_ js.Value, args []js.Value) any {
		ledger.SetFenced(args[0].Bool())
		return nil
	}))
	for range time.Tick(refresh) {
		state, err := observer.State(playground.LockName)
		if err != nil {
			panic(err)
		}
		tell("state", state)
	}
}
