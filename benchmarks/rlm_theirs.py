"""One case in rlms: `PYTHON -P rlm_theirs.py BASE_URL OPTIONS < CONTEXT`, where PYTHON has rlms. Prints JSON."""

import json
import resource
import sys

from rlm import RLM

base_url, options, context = sys.argv[1], json.loads(sys.argv[2]), sys.stdin.read()
backend = {"model_name": "gpt-4o", "base_url": base_url, "api_key": "none"}
used, why = resource.getrusage(resource.RUSAGE_SELF), ""
try:
    model = RLM(backend="openai", backend_kwargs=backend, environment="local", **options)
    output = model.completion(context, root_prompt="go").response
except Exception as error:  # noqa: BLE001  # border: whatever rlms raises is told
    output, why = "", f"{type(error).__name__}: {error}"
now = resource.getrusage(resource.RUSAGE_SELF)
cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
print(json.dumps({"output": str(output), "why": why[:300], "cpu": cpu}))
