--! fragment server_time
--
-- now, the server's clock in ms.
local now
--! include clock now=now
