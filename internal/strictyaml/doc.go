// Package strictyaml reads YAML into structs, and lets nothing pass that the struct has no field for.
//
// It promises that all mistakes of a text are told at once, each with its line and the key that was probably meant;
// that no error shows the value of a text, which may be a secret; and that a text without end is not read to its end
// by who bounds it first. What a struct may hold can also be said by the environment (TakeEnv), described for editors
// (Schema), and written again without secrets (Render). Fields carry their key in a tag yaml, and one secret where
// they are one.
//
// It knows no part of Understudy, checks no relation between keys, and keeps no comments.
package strictyaml
