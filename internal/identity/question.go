package identity

import "time"

// Question is whether a user may do what its rights do not allow. The zero Question asks nothing.
type Question struct {
	User, Client string
	Issuer       string // the name that it has in the mesh; "": a backend said who the user is
	Address      string // the client's, without a port; "": it counts for none
	Verb         Verb
	Filter       string // of topics, or the resource that is claimed
	Group        string // with Group alone
}

// Permission is the answer to a Question.
type Permission struct {
	Allowed bool
	Reason  string // of a refusal, for the client; "": none is said
	// Left is for how long from now on the question needs no other answer.
	Left time.Duration
}
