package httplock

import (
	"net/http"
	"sync"
)

// net/http completes its own request: the server sets the trailer at the body's end, and removes the temporary files of
// the multipart form after the handler's return. Handlers get a copy of the request.

// serveCopy serves in, a copy of r. It gives in the trailer that the server sets in r, and r the form that the handler
// parses. atEnd gets the trailer at the body's end.
func serveCopy(next http.Handler, w http.ResponseWriter, in, r *http.Request, atEnd func(trailer http.Header)) {
	if in.Body != nil && hasTrailer(in) { // r.Trailer may be set by a goroutine that reads ahead
		in.Body = &trailerBody{endingBody{in.Body, sync.OnceFunc(func() { // Close may run beside a Read
			if in.Trailer == nil { // it was not announced
				in.Trailer = r.Trailer
			}
			atEnd(in.Trailer)
		})}}
	}
	defer func() { // also if the handler panics
		if r.MultipartForm == nil {
			r.MultipartForm = in.MultipartForm
		}
	}()
	next.ServeHTTP(w, in)
}

// hasTrailer reports whether r has, or may have, a trailer.
func hasTrailer(r *http.Request) bool { return r.Trailer != nil || r.ContentLength < 0 }

// trailerBody is an endingBody that also calls atEnd on Close: Close makes the server read the rest of the body.
type trailerBody struct{ endingBody }

func (b *trailerBody) Close() error {
	err := b.endingBody.Close()
	if err == nil { // otherwise a read may still run
		b.atEnd()
	}
	return err
}
