// Package hot finds the pages that are asked for most, miss most, or keep their upstream busiest: a proxy.Observer with
// a sketch for each of the three.
//
// A sketch is bounded: it counts a fixed number of pages, however many there are, and still has every page that matters
// (sketch.go). Its counts decay, so that what it tells is about the last minute. One exchange in up to sixteen is looked
// at, for as many as it stands for, so a hit costs a throw of the dice and seldom a lock (tally.go).
package hot
