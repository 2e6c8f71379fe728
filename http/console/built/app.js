import"./chunk-ESTLSORY.js";
