-- A chat with language models: the settings, the buffer, the conversation and the commands.

local Sidecar = require("tollbridge.sidecar")

local api, levels = vim.api, vim.log.levels
local VERCEL = "https://ai-gateway.vercel.sh/v1"
local STATUS = api.nvim_create_namespace("tollbridge")

local M = {}

local config = {
  command = { "tollbridge", "sidecar" },
  base_url = vim.env.TOLLBRIDGE_BASE_URL or VERCEL,
  backend = vim.env.TOLLBRIDGE_BACKEND,
  model = vim.env.TOLLBRIDGE_MODEL,
  window = "botright vsplit",
}
local sidecar -- started by the first request
local running -- the id of the request that is not answered yet
local buffer -- of the chat
local conversation = {} -- messages, as the protocol defines them

--- Change settings. README.md lists them.
function M.setup(settings)
  config = vim.tbl_extend("force", config, settings)
  if sidecar then
    sidecar:close() -- the next request starts one with the new settings
  end
end

-- The default of `api_key`. A key for Vercel AI Gateway is not sent to any other server.
function config.api_key()
  return vim.env.TOLLBRIDGE_API_KEY or config.base_url == VERCEL and vim.env.AI_GATEWAY_API_KEY or nil
end

local function notify(message, level)
  vim.notify("Tollbridge: " .. message, level)
end

-- Append text to the chat, and show a status after it that is not part of the text. A window whose cursor is in
-- the last line follows the text.
local function append(text, status)
  if not buffer then
    return
  end
  local last = api.nvim_buf_line_count(buffer)
  local column = #api.nvim_buf_get_lines(buffer, last - 1, last, true)[1]
  local windows = vim.tbl_filter(function(window)
    return api.nvim_win_get_cursor(window)[1] == last
  end, vim.fn.win_findbuf(buffer))
  vim.bo[buffer].modifiable = true
  api.nvim_buf_set_text(buffer, last - 1, column, last - 1, column, vim.split(text, "\n", { plain = true }))
  vim.bo[buffer].modifiable = false
  last = api.nvim_buf_line_count(buffer)
  for _, window in ipairs(windows) do
    api.nvim_win_set_cursor(window, { last, 0 })
  end
  api.nvim_buf_set_extmark(buffer, STATUS, last - 1, 0, { id = 1, virt_text = { { status or "", "Comment" } } })
end

local function create_buffer()
  buffer = api.nvim_create_buf(false, true)
  api.nvim_buf_set_name(buffer, "tollbridge://chat/" .. buffer)
  vim.bo[buffer].filetype = "markdown"
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].undolevels = -1
  api.nvim_create_autocmd("BufUnload", {
    buffer = buffer,
    callback = function()
      buffer, conversation = nil, {}
      M.stop()
    end,
  })
end

-- Show the chat in a window, without leaving the current one.
local function show_buffer()
  if not buffer then
    create_buffer()
  end
  if #vim.fn.win_findbuf(buffer) == 0 then
    local window = api.nvim_get_current_win()
    vim.cmd(config.window)
    api.nvim_win_set_buf(0, buffer)
    vim.wo.wrap, vim.wo.linebreak = true, true
    vim.cmd("normal! G")
    api.nvim_set_current_win(window)
  end
end

-- Return the sidecar, which is started if necessary, or nil after a message that says why it cannot be started.
local function open_sidecar(account)
  if not (sidecar and sidecar:is_open()) then
    local reason
    sidecar, reason = Sidecar.start(config.command, config.settings)
    if sidecar then
      -- What a model supports is known from the list; a request that comes before it is sent without.
      sidecar:request("models", { account = account }, function() end)
    else
      notify(reason .. ' Set "command" in require("tollbridge").setup().', levels.ERROR)
    end
  end
  return sidecar
end

-- Send a request with the account. `on_end` is called with its result, or else with nil and a status. The
-- sidecar retries by itself, so an error is only shown.
local function request(method, params, on_end, on_parts)
  params.account = { baseUrl = config.base_url, backend = config.backend, apiKey = config.api_key() }
  if not open_sidecar(params.account) then
    return on_end(nil, "Failed. See :messages.")
  end
  running = sidecar:request(method, params, function(fault, result)
    running = nil
    if not fault then
      on_end(result)
    elseif fault.data and fault.data.kind == "cancelled" then
      on_end(nil, "Stopped.")
    else
      notify(fault.message, levels.ERROR)
      on_end(nil, "Failed. See :messages.")
    end
  end, on_parts)
end

local function request_models(refresh, on_models)
  request("models", { refresh = refresh }, function(result, status)
    if result and result.models[1] then
      return on_models(result.models)
    elseif result then
      notify(("%s lists no models."):format(config.base_url), levels.ERROR)
    end
    append("", status)
  end)
end

local function describe(result)
  local usage = result.usage or {}
  local tokens = usage.inputTokens and usage.outputTokens
  tokens = tokens and ("%d in · %d out · "):format(usage.inputTokens, usage.outputTokens) or ""
  return ("%s%.1f s"):format(tokens, result.seconds)
end

-- Send the conversation with a new message, and write the answer into the buffer.
local function chat(message)
  local messages, texts, marker = conversation, {}, nil
  table.insert(messages, message)
  append(("\n# %s\n\n"):format(config.model), "Waiting…")
  request("chat", { model = config.model, messages = messages }, function(result, status)
    if #texts > 0 then
      table.insert(messages, { role = 2, content = { { type = "text", value = table.concat(texts) }, marker } })
    else
      table.remove(messages) -- a question without an answer is not sent again
    end
    append(#texts > 0 and "\n" or "", status or describe(result))
    for _, change in ipairs(result and result.changes or {}) do
      notify(change, levels.INFO)
    end
    if result and result.warning then
      notify(result.warning, levels.WARN)
    end
  end, function(parts)
    for _, part in ipairs(parts) do
      if part.type == "text" then
        table.insert(texts, part.value)
        append(part.value)
      elseif part.type == "thinking" then
        append("", "Thinking…")
      elseif part.mimeType == "stateful_marker" then
        marker = part -- the model's reasoning, which is returned with its answer
      end
    end
  end)
end

-- Return lines of the current buffer as a code block, and a title for it.
local function read_lines(first, last)
  local text = table.concat(api.nvim_buf_get_lines(0, first - 1, last, false), "\n")
  local name, fence = vim.fn.expand("%:."), "```"
  while text:find(fence, 1, true) do
    fence = fence .. "`"
  end
  local title = ("Lines %d to %d of %s"):format(first, last, name ~= "" and name or "a new file")
  return ("%s:\n\n%s%s\n%s\n%s"):format(title, fence, vim.bo.filetype, text, fence), title
end

-- Return whether a request is running, after a message that says so.
local function is_busy()
  if running then
    notify("A request is running. Wait for its end, or run :TollbridgeStop.", levels.WARN)
  end
  return running ~= nil
end

--- `:[range]Tollbridge[!] [prompt]`: ask, with the lines of the range as context. With `!`, start a new chat.
function M.ask(arguments)
  local context, title
  if arguments.range > 0 then
    context, title = read_lines(arguments.line1, arguments.line2)
  end

  local function send(prompt)
    if not prompt or prompt == "" or is_busy() then
      return
    elseif arguments.bang and buffer then
      api.nvim_buf_delete(buffer, { force = true })
    end
    show_buffer()
    local gap = api.nvim_buf_line_count(buffer) > 1 and "\n" or ""
    append(("%s# You\n\n%s\n"):format(gap, table.concat({ prompt, title }, "\n\n")), "Waiting…")
    local text = table.concat({ prompt, context }, "\n\n")
    local message = { role = 1, content = { { type = "text", value = text } } }
    if config.model then
      return chat(message)
    end
    request_models(false, function(models)
      config.model = models[1].model
      chat(message)
    end)
  end

  if arguments.args ~= "" then
    send(arguments.args)
  else
    vim.ui.input({ prompt = "Tollbridge: " }, send)
  end
end

--- `:TollbridgeStop`: stop the answer. What has arrived of it stays.
function M.stop()
  if running then
    sidecar:cancel(running)
  end
end

--- `:TollbridgeModels[!]`: choose the model. With `!`, ask the gateway for a new list.
function M.choose_model(arguments)
  if is_busy() then
    return
  end
  request_models(arguments.bang, function(models)
    local function describe_model(model)
      return ("%s (%s, %d tokens)"):format(model.name, model.model, model.contextWindow)
    end
    vim.ui.select(models, { prompt = "Model:", format_item = describe_model }, function(model)
      config.model = model and model.model or config.model
    end)
  end)
end

--- Return the end of the sidecar's log. It contains no keys and no prompts.
function M.log()
  return sidecar and sidecar.log or ""
end

return M
