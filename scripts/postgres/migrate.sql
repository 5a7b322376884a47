-- What mortise keeps in PostgreSQL: a row for each name that is held or waited for. Migrate carries this out as one
-- statement of several; it may be repeated, and by several processes at once.
--
-- The row of a name that is free again stays, with an empty value, until it is swept. Owner is the holder of a lock
-- with a single holder: its index lets a transaction guard the lock with FOR KEY SHARE, which a change of the owner
-- waits for, and a renewal does not.
select pg_advisory_xact_lock(7308332170193726311);
create table if not exists mortise_names (
  key text collate "C" primary key,
  version bigint not null,
  value bytea,
  stamp bigint not null,
  owner text,
  unique (key, owner)
) with (fillfactor = 50);
create sequence if not exists mortise_versions;

-- Carries out swaps, each on its own, in the order of the arrays. A version of 0 asks for no value, a negative one only
-- reads; a value of null removes. A swap that is not done although the value has its version met a guard: see
-- mortise_guard. The notices of a swap that is done are sent: of_swap has the swap's index from 1.
-- Times are in ms since the Unix epoch. A stamp is read before the row is locked, and after the request has come.
create or replace function mortise_swap(
  keys text[], olds bigint[], vals bytea[], owners text[], of_swap int[], to_session text[], notices text[],
  out done bool[], out versions bigint[], out curs bytea[], out stamps bigint[], out now_ms bigint
) language plpgsql as $$
declare
  r mortise_names;
  n bigint;
  m bigint;
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  for i in 1 .. coalesce(array_length(keys, 1), 0) loop
    done[i] := false; versions[i] := 0; curs[i] := null; stamps[i] := 0;
    if olds[i] >= 0 then
      n := nextval('mortise_versions');
      m := floor(extract(epoch from clock_timestamp()) * 1000);
      if olds[i] > 0 then
        update mortise_names t set version = n, value = vals[i], stamp = m, owner = owners[i]
          where t.key = keys[i] and t.version = olds[i] and t.value is not null
          and (t.owner is null or t.owner = owners[i]);
        if not found then
          -- The owner goes, unless a transaction guards it: then nothing is done, and nothing waits for that
          -- transaction. The first lock waits for writers only.
          perform from mortise_names t where t.key = keys[i] and t.version = olds[i] and t.value is not null
            for no key update;
          if found then
            update mortise_names t set version = n, value = vals[i], stamp = m, owner = owners[i]
              from (select s.key from mortise_names s where s.key = keys[i] for update skip locked) free
              where t.key = free.key;
          end if;
        end if;
      elsif vals[i] is not null then
        insert into mortise_names as t (key, version, value, stamp, owner)
          values (keys[i], n, vals[i], m, owners[i])
          on conflict (key) do update set version = n, value = excluded.value, stamp = m, owner = excluded.owner
          where t.value is null;
      else
        perform 1 where not exists (select from mortise_names t where t.key = keys[i] and t.value is not null);
      end if;
      if found then
        done[i] := true;
        if vals[i] is not null then
          versions[i] := n; stamps[i] := m;
        end if;
        for j in 1 .. coalesce(array_length(of_swap, 1), 0) loop
          if of_swap[j] = i then
            perform pg_notify(to_session[j], notices[j] || ' ' || m);
          end if;
        end loop;
        continue;
      end if;
    end if;
    select * into r from mortise_names t where t.key = keys[i] and t.value is not null;
    if found then
      versions[i] := r.version; curs[i] := r.value; stamps[i] := r.stamp;
    end if;
  end loop;
  now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
end $$;

-- Keeps the owner of a name until the transaction ends: a swap that changes it is not done meanwhile, a renewal is. It
-- raises MO001, which ends the transaction, if the name has another owner, or none. A session that is idle in the
-- transaction for idle_ms is ended by the server, with its transaction.
create or replace function mortise_guard(of_key text, of_owner text, idle_ms bigint) returns void
language plpgsql as $$
declare
  ms bigint := (select setting::bigint from pg_catalog.pg_settings where name = 'idle_in_transaction_session_timeout');
begin
  if ms = 0 or ms > idle_ms then
    perform set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
  end if;
  perform from mortise_names t where t.key = of_key and t.owner = of_owner for key share;
  if not found then
    raise exception 'mortise: % is not held by %', of_key, of_owner using errcode = 'MO001';
  end if;
end $$;
