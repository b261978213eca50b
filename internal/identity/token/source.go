package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// fetchTimeout is how long a fetch of keys may take, discovery included.
const fetchTimeout = 5 * time.Second

// fetchIdle is how long a connection to an issuer is kept: discovery and the keys may be of one
// host, and the next refresh is long after.
const fetchIdle = 30 * time.Second

// fetchKeys gets the keys of an issuer from where they are. client follows no redirects.
func fetchKeys(ctx context.Context, is *Issuer, client *http.Client) (*keySet, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	switch {
	case is.SecretFile != "":
		data, err := ReadFile(is.SecretFile, MaxKeySet)
		if err != nil {
			return nil, err
		}
		return parseSecret(data)
	case is.KeysFile != "":
		data, err := ReadFile(is.KeysFile, MaxKeySet)
		if err != nil {
			return nil, err
		}
		return parseKeys(data, is.Algorithms)
	}
	at := is.JWKSURL
	if is.Discovery {
		var err error
		if at, err = discover(ctx, is, client); err != nil {
			return nil, err
		}
	}
	data, err := get(ctx, client, at)
	if err != nil {
		return nil, err
	}
	return parseJWKs(data, is.Algorithms)
}

// discover asks an issuer where its keys are.
func discover(ctx context.Context, is *Issuer, client *http.Client) (string, error) {
	data, err := get(ctx, client, strings.TrimSuffix(is.URL, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", fmt.Errorf("discovery: %w", err)
	}
	var says struct {
		Issuer string `json:"issuer"`
		At     string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(data, &says); err != nil {
		return "", errors.New("discovery: the answer is not the JSON that OpenID Connect wants")
	}
	if says.Issuer != is.URL {
		return "", errors.New("discovery: the answer is of an issuer that is not url: they must be the same, to the last character")
	}
	if err := is.checkURL(says.At); err != nil {
		return "", fmt.Errorf("discovery: jwks_uri %w", err)
	}
	return says.At, nil
}

// get fetches a document of MaxKeySet bytes at most.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer of %s is %d (redirects are not followed)", url, res.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, MaxKeySet+1))
	if err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", url, err)
	}
	if len(data) > MaxKeySet {
		return nil, fmt.Errorf("the answer of %s is longer than %d bytes", url, MaxKeySet)
	}
	return data, nil
}
