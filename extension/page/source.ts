// Where the report comes from: the server of this page, or the extension that shows it in a webview.

import type { Answer } from "./report.ts";

export interface Source {
  readonly savedDays: number | undefined;
  saveDays(days: number): void;
  /** Returns the report of the last days, or only its revision if that has not changed. */
  fetch(days: number, revision: string | undefined): Promise<Answer>;
}

interface WebviewApi {
  postMessage(message: unknown): void;
  getState(): { days?: number } | undefined;
  setState(state: { days: number }): void;
}

declare function acquireVsCodeApi(): WebviewApi;

export function createSource(): Source {
  return typeof acquireVsCodeApi === "function" ? createWebviewSource(acquireVsCodeApi()) : createServerSource();
}

function createWebviewSource(api: WebviewApi): Source {
  return {
    savedDays: api.getState()?.days,
    saveDays: (days) => api.setState({ days }),
    fetch: (days, revision) =>
      new Promise((resolve, reject) => {
        const receive = ({ data }: MessageEvent<{ answer?: Answer; error?: string }>) => {
          if (!data.answer && !data.error) return;
          window.removeEventListener("message", receive);
          if (data.answer) resolve(data.answer);
          else reject(new Error(data.error));
        };
        window.addEventListener("message", receive);
        api.postMessage({ days, revision });
      }),
  };
}

function createServerSource(): Source {
  // The fragment of a URL is sent to no server.
  const parameters = new URLSearchParams(location.hash.slice(1));
  const token = parameters.get("token");
  return {
    savedDays: Number(parameters.get("days")) || undefined,
    saveDays: (days) => {
      parameters.set("days", String(days));
      history.replaceState(null, "", `#${parameters.toString()}`);
    },
    fetch: async (days, revision) => {
      const query = new URLSearchParams({ days: String(days), ...(revision === undefined ? {} : { revision }) });
      const response = await fetch(`usage.json?${query.toString()}`, {
        headers: token === null ? {} : { authorization: `Bearer ${token}` },
        cache: "no-store",
      }).catch(() => {
        throw new Error("The server has stopped.");
      });
      if (response.status === 401) throw new Error("The token is missing or wrong. Open this page with #token=… at the end of its address.");
      if (!response.ok) throw new Error(`The server answered with HTTP status ${response.status}.`);
      return (await response.json()) as Answer;
    },
  };
}
