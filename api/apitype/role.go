package apitype

import "time"

// Primary is the holder of a role.
type Primary struct {
	Role    string `json:"role"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
	// Term grows with every holder: the fencing token.
	Term        int64     `json:"term"`
	Since       time.Time `json:"since"`
	ExpiresInMS int64     `json:"expires_in_ms"` // until the holder lapses unless it renews
	// TimeoutMS is the T of the holder's session; only the state has it.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// Standby is an instance that waits for a role.
type Standby struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

// Role is a role with its holders and standbys.
type Role struct {
	Role        string    `json:"role"`
	Primaries   []Primary `json:"primaries"`
	Standbys    []Standby `json:"standbys"`
	Term        int64     `json:"term"` // of the present or last holder of its first place
	VacantForMS int64     `json:"vacant_for_ms"`
}

// Roles is a list of roles.
type Roles struct {
	Roles []Role `json:"roles"`
	Next  string `json:"next,omitempty"`
}

// RoleHolders is the primary of one role, all its holders if it has several, and its standbys.
type RoleHolders struct {
	Primary
	Primaries []Primary `json:"primaries"`
	Standbys  []Standby `json:"standbys"`
}

// RoleSelf is the term under which the answering process holds a role.
type RoleSelf struct {
	Role string `json:"role"`
	Term int64  `json:"term"`
}

// ResignRequest asks a primary to give its role up.
type ResignRequest struct {
	To  string `json:"to,omitempty"`  // the standby that is to take over; "" is any
	All bool   `json:"all,omitempty"` // of a role with several holders ask each, not only one
	By  string `json:"by,omitempty"`  // for the history
}

// ResignAccepted says that the primary was asked; the history shows when it resigns.
type ResignAccepted struct {
	Role  string `json:"role"`
	Asked string `json:"asked" enum:"resign"`
	To    string `json:"to"`
	// Primaries that were asked: the one that has held its place longest, or all.
	Primaries []Primary `json:"primaries"`
}
