-- The commands. The rest is loaded when one of them is used.

local function command(name, function_name, options)
  vim.api.nvim_create_user_command(name, function(arguments)
    require("tollbridge")[function_name](arguments)
  end, options)
end

command("Tollbridge", "ask", { nargs = "*", range = true, bang = true, desc = "Ask a language model" })
command("TollbridgeStop", "stop", { desc = "Stop the answer" })
command("TollbridgeModels", "choose_model", { bang = true, desc = "Choose the model" })
