package apitype

// Instance is one running process.
type Instance struct {
	ID      string `json:"id"` // random, new at every start
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
}

// Label is the instance as the history shows it: its name, and enough of its id to tell two runs of the same name
// apart.
func (i Instance) Label() string {
	return i.Name + "/" + i.ID[:min(len(i.ID), 8)]
}
