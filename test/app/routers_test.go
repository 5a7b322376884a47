package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var orders = httplock.RouteKey("orders:{id}")

// gorilla/mux keeps path values for itself.
func muxKey(r *http.Request) (string, error) {
	for name, v := range mux.Vars(r) {
		r.SetPathValue(name, v)
	}
	return orders(r)
}

// gin hands path values on by a handler before the lock.
func ginValues(c *gin.Context) {
	for _, p := range c.Params {
		c.Request.SetPathValue(p.Key, p.Value)
	}
}

// echo hands path values on by a middleware before the lock.
func echoValues(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		for i, name := range c.ParamNames() {
			c.Request().SetPathValue(name, c.ParamValues()[i])
		}
		return next(c)
	}
}

// routed is a router with a locked route /orders/42/ship.
type routed struct {
	key   httplock.KeyFunc
	serve func(lock func(http.Handler) http.Handler, ship http.HandlerFunc) http.Handler
}

var routers = map[string]routed{
	"http.ServeMux": {orders, func(lock func(http.Handler) http.Handler, ship http.HandlerFunc) http.Handler {
		m := http.NewServeMux()
		m.Handle("POST /orders/{id}/ship", lock(ship))
		return m
	}},
	"chi": {orders, func(lock func(http.Handler) http.Handler, ship http.HandlerFunc) http.Handler {
		m := chi.NewRouter()
		m.With(lock).Post("/orders/{id}/ship", ship)
		return m
	}},
	"gorilla/mux": {muxKey, func(lock func(http.Handler) http.Handler, ship http.HandlerFunc) http.Handler {
		m := mux.NewRouter()
		m.Handle("/orders/{id}/ship", lock(ship)).Methods("POST")
		return m
	}},
	"gin": {orders, func(lock func(http.Handler) http.Handler, ship http.HandlerFunc) http.Handler {
		gin.SetMode(gin.TestMode)
		m := gin.New()
		m.POST("/orders/:id/ship", ginValues, gin.WrapH(lock(ship)))
		return m
	}},
	"echo": {orders, func(lock func(http.Handler) http.Handler, ship http.HandlerFunc) http.Handler {
		m := echo.New()
		m.POST("/orders/:id/ship", echo.WrapHandler(ship), echoValues, echo.WrapMiddleware(lock))
		return m
	}},
}

// On each router: a free lock is taken under its name, a held one is 423.
func TestRouters(t *testing.T) {
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			locks := harness.Must(mortise.New(memory.New()))(t)
			defer locks.Close()
			h := router.serve(httplock.New(locks, router.key), func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, httplock.Lease(r.Context()).Name())
			})
			post := func() (int, string) {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/ship", nil))
				return w.Code, w.Body.String()
			}
			status, body := post()
			harness.ErrorIf(t, status != 200 || body != "orders:42", "free: %d %s", status, body)
			held := harness.Must(locks.Lock(context.Background(), "orders:42"))(t)
			status, body = post()
			harness.ErrorIf(t, status != 423 || !strings.Contains(body, httplock.TypeLocked), "held: %d %s", status, body)
			harness.Check(t, held.Unlock(context.Background()))
		})
	}
}

// A handler of echo returns an error when its lock is lost, and echo answers errors, too.
func TestALossIsAnsweredOnceOnEcho(t *testing.T) {
	locks := harness.Must(mortise.New(memory.New()))(t)
	defer locks.Close()
	m := echo.New()
	m.POST("/orders/:id/ship", func(c echo.Context) error {
		_, err := locks.ForceUnlock(context.Background(), "orders:42", "")
		harness.Check(t, err)
		<-c.Request().Context().Done()
		return c.Request().Context().Err()
	}, echoValues, echo.WrapMiddleware(httplock.New(locks, orders,
		httplock.WithLockOptions(mortise.WithLease(time.Second/4)))))
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42/ship", nil))
	body := w.Body.String()
	harness.ErrorIf(t, w.Code != 500 || strings.Count(body, "{") != 1 || !strings.Contains(body, httplock.TypeLost),
		"answered %d %s", w.Code, body)
}

// fiber's adaptor serves a request after a middleware has returned, so the middleware refuses it. A locked handler as a
// whole is served.
func TestFiber(t *testing.T) {
	locks := harness.Must(mortise.New(memory.New()))(t)
	defer locks.Close()
	key := func(*http.Request) (string, error) { return "orders:42", nil }
	var cause error
	lock := httplock.New(locks, key, httplock.WithErrorHandler(
		func(_ http.ResponseWriter, _ *http.Request, p httplock.Problem) { cause = p.Err }))
	app := fiber.New()
	app.Post("/whole", adaptor.HTTPHandler(lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, httplock.Lease(r.Context()).Name())
	}))))
	app.Post("/later", adaptor.HTTPMiddleware(lock), func(c *fiber.Ctx) error {
		t.Error("the handler runs without its lock")
		return nil
	})
	for path, want := range map[string]string{"/whole": "200 orders:42", "/later": "500"} {
		resp, err := app.Test(httptest.NewRequest("POST", path, nil))
		harness.Check(t, err)
		body, err := io.ReadAll(resp.Body)
		harness.ErrorIf(t, err != nil || !strings.HasPrefix(fmt.Sprint(resp.StatusCode, " ", string(body)), want),
			"%s: %d %s", path, resp.StatusCode, body)
	}
	harness.ErrorIf(t, cause == nil || !strings.Contains(cause.Error(), "adaptor.HTTPHandler"), "the cause is %v", cause)
}
