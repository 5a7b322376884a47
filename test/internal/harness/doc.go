// Package harness is what the tests below test/ share: processes that are started, stopped and
// killed ([Process], [Crew]); a ledger outside Redis of which process held what, and when
// ([Ledger]); the verdict on a ledger ([Judge]); client libraries as users set them up ([Site]);
// and small helpers. Servers, and relays before them, are in internal/redistest.
package harness
