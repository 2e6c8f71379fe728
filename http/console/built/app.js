import"./chunk-D3UI43KD.js";
