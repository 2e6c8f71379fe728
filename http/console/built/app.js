import"./chunk-EDGCVU5Y.js";
