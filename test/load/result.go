package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// row is one measured figure. Goal, Reference and Met stay null as long as there is no target.
type row struct {
	Name      string   `json:"name"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Goal      *float64 `json:"goal"`
	Reference *float64 `json:"reference"`
	Met       *bool    `json:"met"`
}

// report prints rows as a table and appends them to file, an object a line, where one is named.
func report(out io.Writer, file string, rows []row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintf(out, "%-60s %14.2f %s\n", r.Name, r.Value, r.Unit); err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	enc := json.NewEncoder(f)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("results: %w", err)
		}
	}
	return f.Close()
}
