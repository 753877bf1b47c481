// Package strictyaml reads YAML into structs, and lets nothing pass that the struct has no field for.
//
// It promises that all mistakes of a text are told at once, each with its line and the key that was probably meant;
// and that no error shows the value of a text, which may be a secret. It does not bound the size of a text; the caller
// must. What a struct may hold can also be said by the environment (ApplyEnv), described for editors
// (Schema), and written again without secrets (Render). Fields carry their key in a tag yaml, and the tag secret if the
// value is one.
//
// It knows no part of Understudy, checks no relation between keys, and keeps no comments.
package strictyaml
