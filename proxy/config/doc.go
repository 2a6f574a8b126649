// Package config turns a file, the environment and flags into one Config.
//
// The layers, strongest first: flag, environment (WEIR_STORE_REDIS_TIMEOUT), file, the shipped config.yaml. That file
// is the defaults: every key is in it, and a test holds it to the structs. Each room owns its part of Config; this
// package composes them.
//
// Nothing is guessed. An unknown key, a key in the wrong case, one that is written twice, a duration without a unit, a
// WEIR_ name that means nothing: each is a Problem with the file and line it stands at and what to write instead,
// and all are reported at once.
//
// A file is read in two steps. read.go walks the YAML beside the structs: it knows lines and exact keys, which
// viper does not keep. What it yields is already of the right types; viper then lays the layers over each other, and
// one strict decode fills the structs. No viper outlives Load.
//
// User-named things are lists (upstreams, routes), never maps: viper folds the case of keys.
package config
