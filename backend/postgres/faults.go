package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mortise-go/mortise/backend"
)

// remedies are those of the errors of the server, by the beginning of their code. The first that fits is used.
var remedies = []struct {
	code, remedy string
	temporary    bool
	// dirty: the transaction may have been carried out.
	dirty bool
}{
	{code: "42P01", remedy: "create mortise's tables: postgres.Migrate, or mortise migrate"},
	{code: "42883", remedy: "create mortise's functions, or newer ones: postgres.Migrate, or mortise migrate"},
	{code: "42501", remedy: "grant the user SELECT, INSERT and UPDATE on mortise_names, USAGE on mortise_versions"},
	{code: "25006", remedy: "the server is a replica, or read-only: connect to the primary", temporary: true},
	{code: "28", remedy: "check the user, the password and pg_hba.conf"},
	{code: "3D", remedy: "create the database"},
	{code: "40", remedy: "the server ended a conflict of transactions: it is tried again", temporary: true},
	{code: "53", remedy: "the server lacks connections, memory or space on disk", temporary: true},
	{code: "55P03", remedy: "another transaction holds the row: it is tried again", temporary: true},
	{code: "57", remedy: "the server ended the connection: it stops, or an operator did it", temporary: true, dirty: true},
	{code: "08", remedy: "check the connection to PostgreSQL", temporary: true, dirty: true},
	{code: "58", remedy: "the server cannot use its files: see its log", temporary: true, dirty: true},
	{code: "XX", remedy: "see the server's log", temporary: true, dirty: true},
}

// fault returns the Fault of an error of a request that may have been sent.
func fault(err error) error {
	f := &backend.Fault{
		Err: fmt.Errorf("postgres: %w", err), Remedy: "check that PostgreSQL runs, and the connection to it",
		MayHaveRun: !pgconn.SafeToRetry(err), Temporary: true,
	}
	var said *pgconn.PgError
	if errors.As(err, &said) {
		f.MayHaveRun, f.Temporary, f.Remedy = false, false, "see the server's log"
		for _, r := range remedies {
			if strings.HasPrefix(said.Code, r.code) {
				f.MayHaveRun, f.Temporary, f.Remedy = r.dirty, r.temporary, r.remedy
				break
			}
		}
	}
	return f
}

// unsent is fault for an error before anything was sent that could change a value.
func unsent(err error) error {
	f := backend.FaultOf(fault(err))
	f.MayHaveRun = false
	return &f
}
