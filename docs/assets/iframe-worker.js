// Search in a folder. A page that is opened as a file may start no worker, so the worker of the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame.contentWindow;
      this.frame.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(new URL(each, url))), Promise.resolve());
      this.frame.postMessage = data => this.tell(data);
      this.load(url).then(() => { this.isReady = true; this.waiting.splice(0).forEach(data => this.postMessage(data)); });
    }
    waiting = [];
    isReady = false;
    load(url) {
      return new Promise((done, failed) => {
        const script = this.frame.document.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = failed;
        this.frame.document.body.appendChild(script);
      });
    }
    postMessage(data) {
      if (!this.isReady) return void this.waiting.push(data);
      this.frame.dispatchEvent(new MessageEvent("message", { data, source: window }));
    }
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    terminate() { this.frame.frameElement.remove(); }
  };
}
