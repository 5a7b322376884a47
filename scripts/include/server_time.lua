--! fragment server_time
--
-- Declares now: the server's time, in ms since the epoch.
local now
--! include clock now=now
