package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/console"
)

func ExampleNew() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		panic(err)
	}
	defer locks.Shutdown(context.Background())

	page := console.New(locks, console.Options{
		Authorize: func(r *http.Request, name string) (by string, err error) {
			user, password, ok := r.BasicAuth() // yours: who is it, and may they free this lock?
			if !ok || user != "operator" || password != "secret" {
				return user, errors.New("not an operator")
			}
			return user, nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", page)
	server := httptest.NewServer(mux)
	defer server.Close()
	defer page.Close()

	res, err := http.Get(server.URL + "/debug/locks/")
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	fmt.Println(res.Status)
	// Output: 200 OK
}
