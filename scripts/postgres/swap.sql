-- Carries out swaps: see mortise_swap in migrate.sql.
select done, versions, curs, stamps, now_ms from mortise_swap($1, $2, $3, $4, $5, $6, $7)
