package settings

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/store/open"
)

// Shown is the configuration as a file would have it, without secrets.
func (c *Server) Shown() *yaml.Node {
	return strictyaml.Render(reflect.ValueOf(c).Elem(), "", strictyaml.Hide)
}

// Fill gives the server the store that it would use, and leaves out what the file says in another way.
func (c *Server) Fill(storeURL string) (err error) {
	if c.StoreFile != "" {
		c.Store = ""
	} else if c.Store == "" {
		if c.Store = storeURL; storeURL == "" {
			if c.Store, err = open.DefaultURL(); err != nil {
				return err
			}
		}
	}
	if c.TokenFile != "" {
		c.Token = ""
	}
	return nil
}
