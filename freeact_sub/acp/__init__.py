"""The Agent Client Protocol (ACP) for editors and notebooks: `freeact-sub acp`, over standard input and output.

- `connection`: the connection, and the `Client` at its other end.
- `methods`: the methods that a client may call, and the open sessions.
- `session`: an agent, and the prompts that it works on, one after the other.
- `commands`: mode and model, as a client shows them; prompts that begin with `/`.
- `updates`: events as updates, live and of a stored session. `actions`: calls as tool calls; prompts and pictures.
- `permissions`: approvals and questions, which the client asks its user.

The messages to the client are plain values here; its own are checked by the SDK's classes. A test holds recorded
traffic against the protocol's JSON schema. The SDK is an extra, and this package alone imports it.
"""
