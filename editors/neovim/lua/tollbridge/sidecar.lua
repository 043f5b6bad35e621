-- The sidecar process and its JSON-RPC messages. docs/protocol.md describes the protocol.

local uv = vim.uv or vim.loop -- vim.uv exists since Neovim 0.10
local LOG_BYTES = 20000

local Sidecar = {}
Sidecar.__index = Sidecar

--- Start the program with its arguments. Returns the sidecar, or nil and the reason why it cannot be started.
--- Requests can be sent at once: they wait until the sidecar is initialized.
function Sidecar.start(command, settings)
  local self = setmetatable({
    log = "", -- the end of standard error
    requests = {}, -- by id: the functions to call with the parts of the answer and with its end
    waiting = {}, -- messages to send after the response to `initialize`; nil after it
    last_id = 0,
    unread = "",
    open = 3, -- the process, standard output and standard error
  }, Sidecar)
  local stdin, stdout, stderr = uv.new_pipe(), uv.new_pipe(), uv.new_pipe()
  local options = { args = vim.list_slice(command, 2), stdio = { stdin, stdout, stderr }, hide = true }
  local process, reason
  process, reason = uv.spawn(command[1], options, function(code, signal)
    self.failure = self.failure or ("The sidecar ended (exit code %d, signal %d)."):format(code, signal)
    self:on_close(process)
  end)
  if not process then
    vim.tbl_map(uv.close, options.stdio)
    return nil, ('Cannot start "%s": %s.'):format(table.concat(command, " "), reason)
  end
  self.stdin = stdin
  self:read(stdout, self.on_output)
  self:read(stderr, self.on_log)
  local version = vim.version()
  local client = { name = "neovim", version = ("%d.%d.%d"):format(version.major, version.minor, version.patch) }
  self:write({
    id = self:register(function(fault)
      self:on_initialized(fault)
    end),
    method = "initialize",
    params = { protocolVersion = 1, client = client, settings = settings },
  })
  return self
end

--- Send a request and return its id. `on_end` is called once, with an error or with nil and the result. Before
--- that, `on_parts` is called with lists of parts of the answer.
function Sidecar:request(method, params, on_end, on_parts)
  local id = self:register(on_end, on_parts)
  self:send({ id = id, method = method, params = params })
  return id
end

--- Cancel a request. It still ends, with an error whose `data.kind` is "cancelled".
function Sidecar:cancel(id)
  self:send({ method = "$/cancelRequest", params = { id = id } })
end

--- Close standard input, which ends the process.
function Sidecar:close()
  if not self.stdin:is_closing() then
    self.stdin:close()
  end
end

function Sidecar:is_open()
  return not self.stdin:is_closing()
end

function Sidecar:register(on_end, on_parts)
  self.last_id = self.last_id + 1
  self.requests[self.last_id] = { on_end = on_end, on_parts = on_parts }
  return self.last_id
end

function Sidecar:send(message)
  if self.waiting then
    table.insert(self.waiting, message)
  else
    self:write(message)
  end
end

function Sidecar:write(message)
  message.jsonrpc = "2.0"
  local body = vim.json.encode(message)
  if self:is_open() then
    self.stdin:write(("Content-Length: %d\r\n\r\n%s"):format(#body, body))
  end
end

function Sidecar:on_initialized(fault)
  local messages = self.waiting
  self.waiting = nil
  if fault then
    self.failure = fault.message
    return self:close()
  end
  for _, message in ipairs(messages) do
    self:write(message)
  end
end

function Sidecar:dispatch(message)
  if message.method == "$/progress" then
    local request = self.requests[message.params.token]
    if request and request.on_parts then
      request.on_parts(message.params.value.parts)
    end
  elseif message.id and self.requests[message.id] then
    local request = self.requests[message.id]
    self.requests[message.id] = nil
    request.on_end(message.error, message.result)
  end
end

-- The functions below are called by libuv, which does not allow most of Neovim's functions: hence vim.schedule.

function Sidecar:read(pipe, on_chunk)
  pipe:read_start(function(_, chunk)
    if chunk then
      on_chunk(self, chunk)
    else
      self:on_close(pipe)
    end
  end)
end

function Sidecar:on_output(chunk)
  self.unread = self.unread .. chunk
  local messages, start = {}, 1
  while true do
    local header_end, body_start = self.unread:find("\r\n\r\n", start, true)
    local length = header_end and self.unread:sub(start, header_end):match("Content%-Length: (%d+)")
    local body_end = length and body_start + length
    if not length or #self.unread < body_end then
      break
    end
    local body = self.unread:sub(body_start + 1, body_end)
    table.insert(messages, vim.json.decode(body, { luanil = { object = true, array = true } }))
    start = body_end + 1
  end
  self.unread = self.unread:sub(start)
  vim.schedule(function()
    for _, message in ipairs(messages) do
      self:dispatch(message)
    end
  end)
end

function Sidecar:on_log(chunk)
  self.log = (self.log .. chunk):sub(-LOG_BYTES)
end

-- When the process has ended and everything that it wrote is read, the pending requests fail.
function Sidecar:on_close(handle)
  handle:close()
  self.open = self.open - 1
  if self.open > 0 then
    return
  end
  vim.schedule(function()
    self:close()
    local requests, last_line = self.requests, vim.trim(self.log):match("[^\n]*$")
    self.requests = {}
    for _, request in pairs(requests) do
      request.on_end({ message = vim.trim(("%s %s"):format(self.failure, last_line)) })
    end
  end)
end

return Sidecar
