package ec2emu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// patched is a copy of current with the fields of the JSON object patch. Other fields
// stay; unknown names are rejected.
func patched[T any](current T, patch []byte) (T, error) {
	var merged T
	text, err := json.Marshal(current)
	if err == nil {
		err = json.Unmarshal(text, &merged)
	}
	if err == nil {
		err = strictJSON(patch, &merged)
	}
	return merged, err
}

// strictJSON reads one JSON value without unknown names.
func strictJSON(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("JSON: something follows the value")
	}
	return nil
}

// body reads the body of a request; false after an error, which it has answered.
func body(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maximumBody))
	if err != nil {
		problem(w, http.StatusBadRequest, err)
	}
	return text, err == nil
}

// reply writes v as JSON.
func reply(w http.ResponseWriter, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		problem(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // a client that is gone needs no answer
}

// problem answers an error as {"error": "…"}.
func problem(w http.ResponseWriter, status int, err error) {
	text, _ := json.Marshal(map[string]string{"error": err.Error()}) // a string always can
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
