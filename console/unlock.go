package console

import (
	"net/http"
	"net/url"
)

// said is what the page of a lock says after an unlock.
var said = map[string]string{
	"freed":   "The lock was freed.",
	"changed": "Nothing was freed: the owner has changed, or the lock was free.",
}

// unlock frees a lock if the owner that the page showed has it still.
func (h *Handler) unlock(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	log := h.o.Logger.With("remote", r.RemoteAddr)
	if err := h.protect.Check(r); err != nil {
		log.WarnContext(r.Context(), "console: unlock refused", "error", err)
		http.Error(w, "refused: the request comes from another site", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	name, owner := r.PostFormValue("name"), r.PostFormValue("owner")
	if name == "" || owner == "" { // an empty owner would free the lock of any
		http.Error(w, "a name and an owner are needed", http.StatusBadRequest)
		return
	}
	log = log.With("lock", h.o.Prefix+name, "owner", owner)
	by, err := h.o.Authorize(r, name)
	log = log.With("by", by)
	if err != nil {
		log.WarnContext(r.Context(), "console: unlock refused", "error", err)
		http.Error(w, "refused: you may not free this lock", http.StatusForbidden)
		return
	}
	freed, err := h.locks.ForceUnlock(r.Context(), name, owner)
	if err != nil { // it may have been freed all the same
		log.ErrorContext(r.Context(), "console: unlock failed", "error", err)
		http.Error(w, "the store did not answer; the lock may be free", http.StatusBadGateway)
		return
	}
	done := "changed"
	if freed {
		done = "freed"
	}
	log.WarnContext(r.Context(), "console: unlock", "freed", freed)
	http.Redirect(w, r, "lock?"+url.Values{"name": {name}, "done": {done}}.Encode(), http.StatusSeeOther)
}
