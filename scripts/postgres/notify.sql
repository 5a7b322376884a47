-- Sends a notice to a session: its own, to see whether what is sent arrives.
select pg_notify($1, $2)
