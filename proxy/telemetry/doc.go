// Package telemetry prints what happened: metrics, and one log line per exchange. It is a proxy.Observer, so it
// learns everything from a Report, and header, log and metrics can never disagree.
//
// Nothing here makes an exchange wait. Counters cost no allocation once a combination of labels has been seen;
// log lines wait in memory for whoever reads them, and are dropped and counted when that memory is full.
//
// Labels come from closed lists only: names in the file, policy's words, verbs of the store. What a client sends
// (paths, hosts, methods, fields) reaches the log and no label. Values of fields reach neither.
package telemetry
