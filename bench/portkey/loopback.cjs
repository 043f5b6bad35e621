// Portkey's gateway listens on all addresses and has no option for it: bind every server to loopback.
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  if (typeof port === "object" && port !== null) return listen.call(this, { ...port, host: "127.0.0.1" }, ...rest);
  return listen.call(this, { port, host: "127.0.0.1" }, rest.find((value) => typeof value === "function"));
};
