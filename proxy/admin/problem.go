package admin

import (
	"encoding/json"
	"net/http"
	"strings"
)

// problem is an error for the asker (RFC 9457). Its type is about:blank, so the title is the status's own words and
// the detail says what happened and what to do next.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, status int, detail string) {
	reply(w, status, "application/problem+json", problem{http.StatusText(status), status, detail})
}

// answer answers with what was asked for.
func answer(w http.ResponseWriter, status int, body any) {
	reply(w, status, "application/json", body)
}

func reply(w http.ResponseWriter, status int, kind string, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil {
		http.Error(w, "cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the asker may have left
}

// only lets the methods through; HEAD comes with GET.
func only(method string, next http.HandlerFunc) http.HandlerFunc {
	allow := []string{method}
	if method == http.MethodGet {
		allow = append(allow, http.MethodHead)
	}
	list := strings.Join(allow, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		for _, m := range allow {
			if r.Method == m {
				next(w, r)
				return
			}
		}
		w.Header().Set("Allow", list)
		refuse(w, http.StatusMethodNotAllowed, r.URL.Path+" answers "+list+" only: ask again with that method")
	}
}
