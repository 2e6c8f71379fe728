// Checks the KEDA resources of a JSON array on standard input; the first one that its schema refuses is an error.
import * as keda from "@kubernetes-models/keda/keda.sh/v1alpha1";

let text = "";
for await (const piece of process.stdin) text += piece;
for (const document of JSON.parse(text)) new keda[document.kind](document).validate();
