-- Keeps the owner of a name until the transaction ends: see mortise_guard in migrate.sql.
select mortise_guard($1, $2, $3)
