// Starts `barewave lsp` for AMDGPU assembly and tells it the setting `barewave.target`.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const settings = workspace.getConfiguration("barewave");
  client = new LanguageClient(
    "barewave",
    "barewave",
    { command: settings.get("path"), args: ["lsp"] },
    {
      documentSelector: [{ language: "amdgpu" }],
      initializationOptions: { target: settings.get("target") },
      synchronize: { configurationSection: "barewave" },
    },
  );
  return client.start();
};

exports.deactivate = () => client?.stop();
